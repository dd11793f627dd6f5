package router

// moduleShape is the shape of a module. The order of its members is that of the original's
// checks.
var moduleShape = newModuleShape()

func (s *shape) isModule() bool { return s == moduleShape }

// newModuleShape builds moduleShape.
func newModuleShape() *shape {
	return shapeOf(fields(
		opts(text, "capabilityEndpointId", "version", "description"),
		opt("priority", number), opt("contexts", texts), opt("config", scalarMap), opt("schema", object),
		opt("actions", records).of(shapeOf(fields(needs2(notBlank, "name", "description"),
			opt("descriptionCompressed", text), opt("similes", texts), opt("parameters", anyJSON))...)),
		opt("providers", records).of(shapeOf(fields(needs2(notBlank, "name"),
			opts(text, "description", "descriptionCompressed"), opts(boolean, "dynamic", "private"))...)),
		opt("evaluators", records).of(shapeOf(fields(needs2(notBlank, "name", "description", "prompt"), need("schema", object),
			opts(texts, "similes", "providers"), opt("priority", number), opt("modelType", text), opts(boolean, "hasPrepare", "hasProcessor"))...)),
		opt("responseHandlerEvaluators", records).of(shapeOf(fields(needs2(notBlank, "name"), opt("description", text),
			opt("priority", number))...)),
		opt("responseHandlerFieldEvaluators", records).of(shapeOf(fields(needs2(notBlank, "name", "description"), need("schema", object).apart(),
			opt("priority", number), opts(boolean, "hasParse", "hasHandle"))...)),
		opt("events", records).of(shapeOf(named("eventName"))),
		opt("models", records).of(shapeOf(named("modelType"), opt("priority", number))),
		opt("services", records).of(shapeOf(named("serviceType"), opt("capabilityDescription", text), opt("config", object),
			opt("methods", texts).where(serviceMethod).distinct())),
		opt("componentTypes", records).of(shapeOf(named("name"), need("schema", record).of(componentSchema()))),
		opt("widgets", records).of(widgetShape()),
		opt("app", record).of(appShape()),
		opt("appBridge", record).of(shapeOf(need("hooks", texts).among(AppBridgeHooks()...).filled())),
		opt("lifecycle", record).of(shapeOf(need("hooks", texts).among(LifecycleHooks()...).filled())),
		opt("routes", records).of(shapeOf(need("method", text).among("GET", "POST", "PUT", "PATCH", "DELETE", "STATIC"),
			need("path", text).where(CheckLocalPath), opt("name", text), opt("public", boolean), opt("description", text),
			opt("publicReason", text), opt("publicWrite", text))),
		opt("views", records).of(viewShape()),
		opt("provenance", record).of(shapeOf(fields(needs2(notBlank, "issuer", "subject"),
			need("digestSha256", text).where(sha256Hex).as(asciiLower), needs2(notBlank, "signatureAlgorithm", "signature"))...)),
		opt("metadata", object),
		need("id", text).where(CheckModuleID), named("name"),
	)...)
}

func needs2(check func(string) error, names ...string) []field {
	out := needs(text, names...)
	for i := range out {
		out[i].check = check
	}
	return out
}

func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func componentSchema() *shape {
	s := &shape{}
	s.fields = []field{
		named("type"), opt("properties", recordMap).of(s), opt("items", record).of(s),
		opt("required", texts), opt("enumValues", texts), opt("description", text),
	}
	return s
}

func widgetShape() *shape {
	slots := []string{"chat-sidebar", "chat-inline", "wallet", "browser", "heartbeats", "character", "settings", "nav-page", "automations"}
	return shapeOf(fields(named("id"), opt("pluginId", text).where(notBlank), need("slot", text).among(slots...), named("label"),
		opt("icon", text), opt("order", number), opt("defaultEnabled", boolean), opt("navGroup", text), opt("developerOnly", boolean),
		opt("componentExport", text), opt("viewKind", text))...)
}

func viewShape() *shape {
	return shapeOf(named("id"), named("label"), opt("viewType", text).among("gui", "tui", "xr"),
		opt("bundlePath", text).where(CheckAssetPath), opt("bundleUrl", text).where(bundleURL),
		opt("framePath", text).where(CheckAssetPath), opt("frameUrl", text).where(bundleURL),
		opt("contentType", text), opt("integrity", text), opt("viewKind", text), opt("surface", object))
}

func appShape() *shape {
	viewer := shapeOf(need("url", text).where(CheckBrowserURL), opt("embedParams", textMap), opt("postMessageAuth", boolean),
		opt("sandbox", text))
	session := shapeOf(need("mode", text).among("viewer", "spectate-and-steer", "external"),
		opt("features", texts).among("commands", "telemetry", "pause", "resume", "suggestions"))
	navTab := shapeOf(fields(named("id"), named("label"), need("path", text).where(CheckLocalPath), opt("icon", text), opt("order", number),
		opt("developerOnly", boolean), opts(text, "group", "componentExport"), opt("viewKind", text),
		opt("surface", object))...)
	return shapeOf(fields(opt("displayName", text).where(notBlank), opts(text, "category", "launchType", "runtimePlugin", "bridgeExport"),
		opt("launchUrl", text).where(CheckBrowserURL).orNull(), opt("icon", text).orNull(), opt("capabilities", texts),
		opt("minPlayers", number).orNull(), opt("maxPlayers", number).orNull(), opt("viewer", record).of(viewer),
		opt("session", record).of(session),
		opt("uiExtension", record).of(shapeOf(opt("detailPanelId", text))), opts(boolean, "developerOnly", "visibleInAppStore"),
		opt("navTabs", records).of(navTab), opt("viewKind", text))...)
}
