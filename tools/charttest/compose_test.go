package charttest

import (
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// composeFile is a compose file with the fields that ours have; others fail the test.
type composeFile struct {
	Services map[string]composeService    `json:"services"`
	Networks map[string]*composeNetwork   `json:"networks"`
	Volumes  map[string]*struct{}         `json:"volumes"`
	Secrets  map[string]map[string]string `json:"secrets"`
	Gateway  any                          `json:"x-gateway"`
}

type composeNetwork struct {
	Internal bool `json:"internal"`
}

type composeService struct {
	Image           string            `json:"image"`
	Hostname        string            `json:"hostname"`
	Restart         string            `json:"restart"`
	Init            bool              `json:"init"`
	StopGracePeriod string            `json:"stop_grace_period"`
	Ports           []string          `json:"ports"`
	Environment     map[string]string `json:"environment"`
	Volumes         []string          `json:"volumes"`
	Networks        []string          `json:"networks"`
	Secrets         []string          `json:"secrets"`
	DependsOn       map[string]struct {
		Condition string `json:"condition"`
	} `json:"depends_on"`
	Healthcheck *struct {
		Test        []string `json:"test"`
		Interval    string   `json:"interval"`
		Timeout     string   `json:"timeout"`
		StartPeriod string   `json:"start_period"`
		Retries     int      `json:"retries"`
	} `json:"healthcheck"`
	ReadOnly    bool     `json:"read_only"`
	Tmpfs       []string `json:"tmpfs"`
	CapDrop     []string `json:"cap_drop"`
	SecurityOpt []string `json:"security_opt"`
	MemLimit    string   `json:"mem_limit"`
	PidsLimit   int      `json:"pids_limit"`
}

// interpolation matches ${NAME:-default}.
var interpolation = regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`)

func openCompose(t *testing.T, name string) composeFile {
	t.Helper()
	var c composeFile
	text := interpolation.ReplaceAll(read(t, name), []byte("$1"))
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		t.Fatalf("%s: %v; want the fields of a compose file that the test has", name, err)
	}
	return c
}

func TestComposeFilesRunHardenedGateways(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"deploy/compose.yaml": 1, "deploy/compose.several.yaml": 2} {
		c := openCompose(t, name)
		homes, ports := make(map[string]bool), make(map[string]bool)
		for id, s := range c.Services {
			where := name + " " + id
			checkImage(t, where, s.Image)
			if s.Healthcheck == nil || len(s.Healthcheck.Test) < 2 || s.Healthcheck.Test[0] != "CMD" {
				t.Errorf("%s has the health check %+v, want a program without a shell", where, s.Healthcheck)
			}
			checkReferences(t, where, c, s)
			if !strings.HasPrefix(s.Image, "junctor:") {
				continue
			}
			if s.Image != "junctor:"+currentVersion(t) {
				t.Errorf("%s is %s, want the version of the Makefile, %s", where, s.Image, currentVersion(t))
			}
			if !slices.Equal(s.Healthcheck.Test, []string{"CMD", "junctor", "health"}) {
				t.Errorf("%s is checked by %v, want junctor health", where, s.Healthcheck.Test)
			}
			for _, port := range s.Ports {
				host, inner, ok := strings.Cut(port, ":")
				if ip := net.ParseIP(host); !ok || ip == nil || !ip.IsLoopback() || !strings.HasSuffix(inner, ":7777") || ports[port] {
					t.Errorf("%s publishes %s, want 7777 on a loopback port of its own", where, port)
				}
				ports[port] = true
			}
			if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") ||
				s.MemLimit == "" || s.PidsLimit == 0 {
				t.Errorf("%s is %+v, want a read-only root, no capabilities, no new privileges and limits", where, s)
			}
			home := s.Volumes[0]
			if len(s.Volumes) != 1 || !strings.HasSuffix(home, ":/var/lib/junctor") || homes[home] {
				t.Errorf("%s has the volumes %v, want one home of its own", where, s.Volumes)
			}
			homes[home] = true
			if len(s.Secrets) == 0 || s.Environment["JUNCTOR_SECRETS_DIR"] != "/run/secrets" {
				t.Errorf("%s has the secrets %v in %q, want files in /run/secrets", where, s.Secrets, s.Environment["JUNCTOR_SECRETS_DIR"])
			}
			checkEnvironment(t, where, s.Environment)
		}
		if len(homes) != want {
			t.Errorf("%s has %d gateways, want %d", name, len(homes), want)
		}
	}
}

// checkReferences holds that what a service names is declared.
func checkReferences(t *testing.T, where string, c composeFile, s composeService) {
	t.Helper()
	for _, volume := range s.Volumes {
		id, _, _ := strings.Cut(volume, ":")
		if _, ok := c.Volumes[id]; !ok {
			t.Errorf("%s uses the volume %s, want one of %v", where, id, slices.Collect(maps.Keys(c.Volumes)))
		}
	}
	for _, id := range s.Secrets {
		if !strings.HasPrefix(c.Secrets[id]["file"], "./secrets/") {
			t.Errorf("%s uses the secret %s from %q, want a file in ./secrets", where, id, c.Secrets[id]["file"])
		}
	}
	for _, id := range s.Networks {
		if _, ok := c.Networks[id]; !ok {
			t.Errorf("%s uses the network %s, want one of %v", where, id, slices.Collect(maps.Keys(c.Networks)))
		}
	}
	for id, on := range s.DependsOn {
		if c.Services[id].Healthcheck == nil || on.Condition != "service_healthy" {
			t.Errorf("%s depends on %s, %s; want a service with a health check", where, id, on.Condition)
		}
	}
}

// TestComposeDatabaseIsOnTheInnerNetworkOnly: its connections have no TLS.
func TestComposeDatabaseIsOnTheInnerNetworkOnly(t *testing.T) {
	t.Parallel()
	c := openCompose(t, "deploy/compose.several.yaml")
	database := c.Services["database"]
	if len(database.Ports) != 0 || !slices.Equal(database.Networks, []string{"store"}) || c.Networks["store"] == nil ||
		!c.Networks["store"].Internal {
		t.Errorf("the database is %+v in %+v, want it without ports in the internal network", database, c.Networks)
	}
	if database.Environment["POSTGRES_PASSWORD_FILE"] != "/run/secrets/store-password" || database.Environment["POSTGRES_PASSWORD"] != "" {
		t.Errorf("the database has the environment %v, want its password from a file", database.Environment)
	}
	for _, id := range []string{"gateway-a", "gateway-b"} {
		env := c.Services[id].Environment
		if !strings.HasPrefix(env["JUNCTOR_STORE_URL"], "postgres://"+database.Environment["POSTGRES_USER"]+"@database:5432/"+
			database.Environment["POSTGRES_DB"]+"?") || env["JUNCTOR_STORE_PASSWORD_SECRET"] != "store-password" {
			t.Errorf("%s has the environment %v, want the database of the file", id, env)
		}
	}
}

// checkImage holds that an image has a tag with a version.
func checkImage(t *testing.T, where, image string) {
	t.Helper()
	_, tag, ok := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !ok || !regexp.MustCompile(`^\d+\.\d+`).MatchString(tag) {
		t.Errorf("%s uses the image %q, want a tag with a version", where, image)
	}
}
