package search_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/search"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

// wanted returns tools as servers declare them, each with a query by which a user who needs
// it might search: name, description, query.
func wanted() [][3]string {
	return [][3]string{
		{"create_pull_request", "Open a pull request from one branch of a repository to another.", "open a pull request"},
		{"merge_pull_request", "Merge an open pull request, by squash, rebase or merge commit.", "squash and merge the pull request"},
		{"list_commits", "List the commits of a branch, newest first.", "commits on a branch"},
		{"search_code", "Find text in the source files of all repositories.", "find text in source code"},
		{"create_issue", "File a new issue with title, body and labels.", "file an issue with labels"},
		{"send_email", "Send an email with subject, body and attachments to one or more recipients.", "send an email with an attachment"},
		{"search_inbox", "Search the mailbox for messages by sender, subject or date.", "find messages from a sender in my mailbox"},
		{"create_calendar_event", "Add an event to a calendar and invite attendees.", "invite people to a calendar event"},
		{"find_free_slot", "Find a time at which all attendees are free to meet.", "when are all attendees free to meet"},
		{"post_channel_message", "Post a message into a chat channel.", "post in a chat channel"},
		{"upload_object", "Upload a file into a storage bucket.", "upload a file to a bucket"},
		{"presign_url", "Make a temporary link for downloading an object from a bucket.", "temporary download link"},
		{"run_sql_query", "Run a read-only SQL query against the warehouse and return the rows.", "run a sql query"},
		{"describe_table", "Show columns, types and indexes of a database table.", "columns and indexes of a table"},
		{"restart_deployment", "Restart the pods of a deployment in the cluster.", "restart pods of a deployment"},
		{"get_pod_logs", "Read the logs of a pod, also of its previous container.", "read pod logs"},
		{"scale_service", "Change how many replicas a service runs.", "change the number of replicas"},
		{"query_metrics", "Evaluate a PromQL expression over a time range.", "evaluate promql"},
		{"silence_alert", "Mute an alert for some hours with a comment.", "mute an alert"},
		{"create_invoice", "Draft an invoice for a customer with line items.", "draft an invoice for a customer"},
		{"refund_payment", "Refund a charge, in full or in part.", "give a refund for a charge"},
		{"lookup_customer", "Find a customer by name, email or phone number.", "find customer by phone"},
		{"translate_text", "Translate text from one language into another.", "translate into another language"},
		{"transcribe_audio", "Turn speech in an audio recording into text.", "speech recording to text"},
		{"resize_image", "Scale an image to a width and height.", "scale an image"},
		{"extract_pdf_text", "Read the text out of a PDF document, page by page.", "text from a pdf"},
		{"take_screenshot", "Take a screenshot of a web page in a headless browser.", "screenshot of a web page"},
		{"geocode_address", "Turn a postal address into latitude and longitude.", "latitude and longitude of an address"},
		{"get_weather_forecast", "Forecast of temperature, wind and rain for a place.", "will there be rain, forecast for a place"},
		{"book_flight", "Book a seat on a flight for a passenger.", "book a seat on a flight"},
		{"convert_currency", "Convert an amount of money between currencies at today's rate.", "convert money between currencies"},
		{"add_contact", "Save a person with phone and email to the address book.", "save a person in the address book"},
		{"unlock_door", "Unlock a door of the building by its id.", "unlock a door"},
		{"set_thermostat", "Set the target temperature of a room.", "target temperature of a room"},
		{"start_vacuum", "Send the vacuum robot to clean a room.", "clean a room with the robot"},
		{"print_document", "Print a document on a network printer.", "print on the network printer"},
		{"read_barcode", "Decode a barcode or QR code in a picture.", "decode a qr code"},
		{"create_ticket", "Open a support ticket for a customer with a priority.", "support ticket with a priority"},
		{"rotate_secret", "Replace a credential in the vault and revoke the old one.", "replace a credential in the vault"},
		{"block_ip", "Block an IP address at the firewall.", "block an ip address at the firewall"},
	}
}

// TestSearchFindsWhatIsMeantAmongTenThousand measures recall at 5; Benchmark100000
// measures the time of a query.
func TestSearchFindsWhatIsMeantAmongTenThousand(t *testing.T) {
	t.Parallel()
	verbs := strings.Fields("list get update delete archive export import sync validate compare tag assign watch approve")
	nouns := strings.Fields("order shipment contract asset vendor budget survey lesson recipe ticketing policy vehicle claim permit device playlist trophy habitat ledger roster")
	var modules []capability.Module
	for n := range 200 {
		var list []capability.Contribution
		for i := range 50 {
			k := n*50 + i
			verb, noun := verbs[k%len(verbs)], nouns[k/len(verbs)%len(nouns)]
			list = append(list, tool(fmt.Sprintf("%s_%s_%d", verb, noun, k), "",
				fmt.Sprintf("%s the %s of a tenant, with paging and filters, by its id.", verb, noun)))
		}
		modules = append(modules, module(fmt.Sprintf("mcp.s%03d", n), fmt.Sprintf("s%03d", n), list...))
	}
	var real []capability.Contribution
	for _, w := range wanted() {
		real = append(real, tool(w[0], "", w[1]))
	}
	modules = append(modules, module("mcp.real", "real", real...))
	_, comp := fill(t, catalog.Settings{}, modules...)
	a := comp.Compile(&capability.Context{})
	var ix search.Index
	found := 0
	for _, w := range wanted() {
		hits := ix.Search(a, w[2], 5, compile.Spelling{}, nil)
		if slices.ContainsFunc(hits, func(h search.Hit) bool { return strings.HasSuffix(h.Action.Name, w[0]) }) {
			found++
		} else {
			t.Logf("%q finds %s, not %s", w[2], names(hits), w[0])
		}
	}
	if recall := float64(found) / float64(len(wanted())); recall < 0.9 {
		t.Errorf("recall at 5 is %.2f; want recall at least 0.9", recall)
	}
}

// published fills a catalog with the published tools and generated ones, n in all.
func published(t testing.TB, n int) *compile.Agent {
	t.Helper()
	byServer := make(map[string][]capability.Contribution)
	for _, tl := range catalogtest.Neighbours(n) {
		c := tool(tl.Name, "", tl.Description)
		properties := make(map[string]map[string]string)
		for _, a := range tl.Arguments {
			properties[a] = map[string]string{"type": "string"}
		}
		schema, err := json.Marshal(map[string]any{"type": "object", "properties": properties})
		if err != nil {
			t.Fatalf("the schema of %s: got %v, want no error", tl.Name, err)
		}
		c.InputSchema = schema
		byServer[tl.Server] = append(byServer[tl.Server], c)
	}
	var modules []capability.Module
	for server, list := range byServer {
		modules = append(modules, module("mcp."+server, server, list...))
	}
	_, comp := fill(t, catalog.Settings{}, modules...)
	return comp.Compile(&capability.Context{})
}

// TestRequestsFindTheirTools measures how often a request in a person's words finds the tool that does
// it, with its words alone and in at most two searches.
func TestRequestsFindTheirTools(t *testing.T) {
	t.Parallel()
	requestsFind(t, 10_000, 0.9)
}

func requestsFind(t *testing.T, n int, want float64) {
	t.Helper()
	a := published(t, n)
	var ix search.Index
	requests := catalogtest.Requests()
	found, top := 0, 0
	for _, r := range requests {
		var got string
		ok := false
		for i, query := range r.Searches() {
			hits := ix.Search(a, query, 0, compile.Spelling{}, nil)
			got += names(hits) + " | "
			at := slices.IndexFunc(hits, func(h search.Hit) bool {
				return h.Action.Entries[0].Contribution.Tool == r.Tool // its name is qualified if another tool's is similar
			})
			if ok = at >= 0; ok {
				if i == 0 && at == 0 {
					top++
				}
				break
			}
		}
		if ok {
			found++
		} else {
			t.Logf("%q does not find %s but %s", r.Text, r.Tool, got)
		}
	}
	recall := float64(found) / float64(len(requests))
	t.Logf("FIGURES of %d tools: %.1f %% of %d requests find their tool in two searches, %.1f %% first in the first", n, 100*recall,
		len(requests), 100*float64(top)/float64(len(requests)))
	if recall < want {
		t.Errorf("requests that find their tool in two searches: got %.3f of them, want %.2f", recall, want)
	}
}
