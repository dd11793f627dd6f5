package sandbox

import "fmt"

func canaryMain(args []string) int {
	if len(args) == 1 && args[0] == "nothing" {
		fmt.Println("alive")
		return 0
	}
	return 2
}
