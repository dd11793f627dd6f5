package charttest

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(filepath.Join(repository, "deploy", "helm", "junctor"))
	if err != nil {
		t.Fatalf("LoadDir() = %v, want no error", err)
	}
	return c
}

// render renders the chart with values in YAML, which the chart's schema has to accept.
func render(t *testing.T, c *chart.Chart, text string) (map[string]string, error) {
	t.Helper()
	values, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		t.Fatalf("ReadValues(%s) = %v, want no error", text, err)
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{
		Name: "gate", Namespace: "agents", IsInstall: true,
	}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(c, all)
}

// rendered holds the objects of one rendering. Each is decoded strictly, so that a field
// that the cluster's API lacks fails the test.
type rendered struct {
	set      appsv1.StatefulSet
	services []corev1.Service
	accounts []corev1.ServiceAccount
	ingress  *networkingv1.Ingress
	policy   *networkingv1.NetworkPolicy
	text     string
}

func objects(t *testing.T, values string) rendered {
	t.Helper()
	c := loadChart(t)
	files, err := render(t, c, values)
	if err != nil {
		t.Fatalf("render(%s) = %v, want no error", values, err)
	}
	var r rendered
	names := make(map[string]bool)
	for name, text := range files {
		if path.Ext(name) != ".yaml" {
			continue
		}
		r.text += text
		for doc := range strings.SplitSeq(text, "\n---\n") {
			var head struct {
				Kind     string `json:"kind"`
				Metadata struct {
					Name   string            `json:"name"`
					Labels map[string]string `json:"labels"`
				} `json:"metadata"`
			}
			if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
				t.Fatalf("%s: %v: %s; want YAML", name, err, doc)
			}
			var err error
			switch head.Kind {
			case "": // a template that its values turn off
				if strings.TrimSpace(doc) != "" {
					t.Errorf("%s has a document without a kind: %s; want a kind", name, doc)
				}
				continue
			case "StatefulSet":
				err = yaml.UnmarshalStrict([]byte(doc), &r.set)
			case "Service":
				r.services = append(r.services, corev1.Service{})
				err = yaml.UnmarshalStrict([]byte(doc), &r.services[len(r.services)-1])
			case "ServiceAccount":
				r.accounts = append(r.accounts, corev1.ServiceAccount{})
				err = yaml.UnmarshalStrict([]byte(doc), &r.accounts[len(r.accounts)-1])
			case "Ingress":
				r.ingress = &networkingv1.Ingress{}
				err = yaml.UnmarshalStrict([]byte(doc), r.ingress)
			case "NetworkPolicy":
				r.policy = &networkingv1.NetworkPolicy{}
				err = yaml.UnmarshalStrict([]byte(doc), r.policy)
			default:
				err = fmt.Errorf("the kind %s is not expected", head.Kind)
			}
			if err != nil {
				t.Errorf("%s: %v; want an object of the API:\n%s", name, err, doc)
			}
			if id := head.Kind + "/" + head.Metadata.Name; names[id] || head.Metadata.Labels["app.kubernetes.io/instance"] != "gate" {
				t.Errorf("%s has labels %v, want one object of the name, of the release", id, head.Metadata.Labels)
			} else {
				names[id] = true
			}
		}
	}
	return r
}

// environment returns the variables of the gateway. Those of a Secret have a value for the
// check.
func (r rendered) environment() map[string]string {
	env := make(map[string]string)
	for _, v := range r.set.Spec.Template.Spec.Containers[0].Env {
		env[v.Name] = v.Value
		if v.ValueFrom != nil {
			env[v.Name] = "postgres://junctor@db.example.org:5432/junctor"
		}
	}
	return env
}

// allValues turns on everything that the chart has.
const allValues = `
image: {repository: registry.example.org/team/junctor, tag: 1.2.3, pullSecrets: [{name: pull}]}
replicas: 3
config: {log.level: debug, console.verify: "off", limits.per_provider: 16, pty.enabled: false}
secrets: {existingSecret: further}
store: {urlSecret: {name: db}, passwordSecret: {name: db, key: secret}}
persistence: {size: 10Gi, storageClass: fast}
ingress: {enabled: true, className: front, host: gate.example.org, tlsSecret: cert, annotations: {a: b}}
serviceAccount: {annotations: {a: b}}
service: {port: 80, annotations: {a: b}}
networkPolicy:
  from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: front}}}]
  egress: [{ports: [{port: 443}]}]
podAnnotations: {a: b}
podLabels: {team: agents}
nodeSelector: {kubernetes.io/arch: arm64}
tolerations: [{key: a, operator: Exists}]
affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
`

func TestChartRunsHardenedGateways(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]string{
		"defaults": "{}", "everything": allValues, "no home": "persistence: {enabled: false}",
		"a password": "store: {urlSecret: {name: db}, passwordSecret: {name: db}}", "a socket": "store: {urlSecret: {name: db}}",
		"secrets": "secrets: {existingSecret: further}", "an account": "serviceAccount: {create: false, name: given}",
	} {
		r := objects(t, values)
		pod := r.set.Spec.Template.Spec
		if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
			t.Fatalf("%s: %d containers, want one", name, len(pod.Containers))
		}
		c := pod.Containers[0]
		checkImage(t, name, c.Image)
		if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || *s.RunAsUser != 10001 || *s.FSGroup != 10001 ||
			*s.FSGroupChangePolicy != corev1.FSGroupChangeOnRootMismatch || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: the pod's security context is %+v, want the image's user and the default profile", name, s)
		}
		if s := c.SecurityContext; s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
			!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.Privileged != nil || len(s.Capabilities.Add) != 0 {
			t.Errorf("%s: the security context is %+v, want a read-only root without capabilities", name, s)
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s: resources are %+v, want requests and a limit of memory", name, c.Resources)
		}
		for probe, want := range map[*corev1.Probe]string{c.StartupProbe: "/healthz", c.LivenessProbe: "/healthz", c.ReadinessProbe: "/readyz"} {
			if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != want || probe.HTTPGet.Port.String() != c.Ports[0].Name {
				t.Errorf("%s: a probe is %+v, want a request of %s", name, probe, want)
			}
		}
		// JUNCTOR_PORT and the like, of a service of that name, would be refused as unknown keys.
		if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
			t.Errorf("%s: enableServiceLinks is not false, want false", name)
		}
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.HostNetwork || pod.HostPID || pod.HostIPC {
			t.Errorf("%s: the pod has a token or shares namespaces of the host, want neither", name)
		}
		for _, a := range r.accounts {
			if a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken || a.Name != pod.ServiceAccountName {
				t.Errorf("%s: the account is %+v, want %s without a token", name, a, pod.ServiceAccountName)
			}
		}
		checkVolumes(t, name, r)
		checkSelectors(t, name, r)
		env := r.environment()
		if len(env) != len(c.Env) {
			t.Errorf("%s: variables are %+v, want each once", name, c.Env)
		}
		checkEnvironment(t, "the chart with "+name, env)
	}
}

// checkVolumes holds that each mount has a volume, that the home is in the volume, and that
// no volume is of the host.
func checkVolumes(t *testing.T, name string, r rendered) {
	t.Helper()
	pod := r.set.Spec.Template.Spec
	volumes := make(map[string]bool)
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
		if v.HostPath != nil {
			t.Errorf("%s: the volume %s is of the host, want none that is", name, v.Name)
		}
	}
	for _, v := range r.set.Spec.VolumeClaimTemplates {
		if volumes[v.Name] || v.Spec.Resources.Requests.Storage().IsZero() {
			t.Errorf("%s: the claim %s is %+v, want one of its name, with a size", name, v.Name, v.Spec)
		}
		volumes[v.Name] = true
	}
	mounts := make(map[string]string)
	for _, m := range pod.Containers[0].VolumeMounts {
		mounts[m.MountPath] = m.Name
		if !volumes[m.Name] {
			t.Errorf("%s: %s is mounted from %s, want one of %v", name, m.MountPath, m.Name, volumes)
		}
		delete(volumes, m.Name)
	}
	if len(volumes) != 0 {
		t.Errorf("%s: the volumes %v are not mounted, want all mounted", name, volumes)
	}
	env := r.environment()
	if path.Dir(env["JUNCTOR_HOME"]) != "/var/lib/junctor" || mounts["/var/lib/junctor"] != "home" || mounts["/tmp"] == "" {
		t.Errorf("%s: the home is %s with the mounts %v, want a folder in its volume", name, env["JUNCTOR_HOME"], mounts)
	}
	if dir := env["JUNCTOR_SECRETS_DIR"]; (dir == "") != (mounts["/run/secrets/junctor"] == "") || dir != "" && mounts[dir] == "" {
		t.Errorf("%s: secrets are read from %q with the mounts %v, want the folder that is mounted", name, dir, mounts)
	}
}

// checkSelectors holds that services, the policy and the set select the pods.
func checkSelectors(t *testing.T, name string, r rendered) {
	t.Helper()
	labels := r.set.Spec.Template.Labels
	selectors := map[string]map[string]string{"set": r.set.Spec.Selector.MatchLabels, "policy": r.policy.Spec.PodSelector.MatchLabels}
	headless := false
	for _, s := range r.services {
		selectors[s.Name] = s.Spec.Selector
		headless = headless || s.Name == r.set.Spec.ServiceName && s.Spec.ClusterIP == corev1.ClusterIPNone
		if s.Spec.Ports[0].TargetPort.String() != r.set.Spec.Template.Spec.Containers[0].Ports[0].Name {
			t.Errorf("%s: %s leads to %s, want the port of the container", name, s.Name, s.Spec.Ports[0].TargetPort.String())
		}
	}
	if !headless || len(r.services) != 2 {
		t.Errorf("%s: the set is of the service %s, want a headless one", name, r.set.Spec.ServiceName)
	}
	for id, selector := range selectors {
		if len(selector) == 0 {
			t.Errorf("%s: %s selects all pods, want those of the release", name, id)
		}
		for key, value := range selector {
			if labels[key] != value {
				t.Errorf("%s: %s selects %s=%s, want the labels of the pods, %v", name, id, key, value, labels)
			}
		}
	}
}

func TestChartPassesItsValuesOn(t *testing.T) {
	t.Parallel()
	r := objects(t, allValues)
	env := r.environment()
	for key, want := range map[string]string{
		"JUNCTOR_LOG_LEVEL": "debug", "JUNCTOR_LOG_FORMAT": "json", "JUNCTOR_CONSOLE_VERIFY": "off", "JUNCTOR_LIMITS_PER_PROVIDER": "16",
		"JUNCTOR_PTY_ENABLED": "false", "JUNCTOR_PUBLIC_URL": "https://gate.example.org", "JUNCTOR_STORE_PASSWORD_SECRET": "store-password",
	} {
		if env[key] != want {
			t.Errorf("%s is %q, want %q", key, env[key], want)
		}
	}
	if *r.set.Spec.Replicas != 3 || *r.set.Spec.VolumeClaimTemplates[0].Spec.StorageClassName != "fast" {
		t.Errorf("the set is %+v, want 3 gateways on fast volumes", r.set.Spec)
	}
	if i := r.ingress; i == nil || i.Spec.TLS[0].SecretName != "cert" || *i.Spec.IngressClassName != "front" ||
		i.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name != r.set.Name {
		t.Errorf("the ingress is %+v, want TLS in front of the service", i)
	}
	if p := r.policy; len(p.Spec.Egress) != 1 || len(p.Spec.PolicyTypes) != 2 || p.Spec.Ingress[0].From[0].NamespaceSelector == nil {
		t.Errorf("the policy is %+v, want the given rules", p.Spec)
	}
	// The value of a password is never in an object: it is mounted.
	for _, source := range r.set.Spec.Template.Spec.Volumes {
		if source.Name == "secrets" && source.Projected.Sources[1].Secret.Items[0].Path != env["JUNCTOR_STORE_PASSWORD_SECRET"] {
			t.Errorf("secrets are %+v, want the password as store-password", source.Projected)
		}
	}
	if off := objects(t, "{}"); off.ingress != nil || len(off.set.Spec.Template.Spec.Volumes) != 1 || off.environment()["JUNCTOR_STORE_URL"] != "" {
		t.Errorf("the defaults have %s, want neither an ingress nor secrets nor a store", off.text)
	}
	off, err := render(t, loadChart(t), "networkPolicy: {enabled: false}")
	if err != nil || strings.Contains(fmt.Sprint(off), "kind: NetworkPolicy") {
		t.Errorf("networkPolicy.enabled=false renders %v, %v; want none", off, err)
	}
}

func TestChartRefusesWrongValues(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"replicas: 2":                                       "store.urlSecret",
		"store: {passwordSecret: {name: db}}":               "store.urlSecret",
		"image: {tag: latest}":                              "image.tag",
		"replica: 1":                                        "replica",
		"config: {LOG_LEVEL: debug}":                        "LOG_LEVEL",
		"ingress: {enabled: true}\nconfig: {public_url: x}": "public_url",
	} {
		if _, err := render(t, loadChart(t), values); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "/", "."), want) {
			t.Errorf("render(%q) = %v, want an error with %s", values, err, want)
		}
	}
}

func TestChartHasTheVersionOfTheProgram(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	if c.Metadata.AppVersion != currentVersion(t) || c.Metadata.Version != currentVersion(t) {
		t.Errorf("the chart is %s of %s, want both %s", c.Metadata.Version, c.Metadata.AppVersion, currentVersion(t))
	}
	if err := c.Validate(); err != nil {
		t.Errorf("Validate() = %v, want no error", err)
	}
	files, err := render(t, c, "{}")
	if notes := files["junctor/templates/NOTES.txt"]; err != nil || !strings.Contains(notes, "exec gate-junctor-0 -- junctor") {
		t.Errorf("the notes are %q, %v; want the command for the pod", notes, err)
	}
}
