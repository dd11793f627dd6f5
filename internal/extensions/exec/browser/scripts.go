package browser

// The JavaScript functions that run in pages, isolated from the pages' own scripts. Each
// takes one argument and returns one value.
const (
	whereScript = `() => ({URL: location.href, Title: document.title})`

	restScript = `() => new Promise(done => setTimeout(() => done(null), 150))`

	clickScript = `selector => {
	const it = document.querySelector(selector);
	if (!it) return {Found: false};
	it.scrollIntoView({block: "center"});
	it.click();
	return {Found: true};
}`

	fillScript = `({selector, value}) => {
	const it = document.querySelector(selector);
	if (!it) return {Found: false};
	const tell = () => { for (const name of ["input", "change"]) it.dispatchEvent(new Event(name, {bubbles: true})); };
	let fillable = true, hidden = false;
	if (it instanceof HTMLSelectElement) {
		const choice = [...it.options].find(o => o.value === value || o.text.trim() === value);
		if (choice) it.value = choice.value; else fillable = false;
	} else if (it instanceof HTMLInputElement && (it.type === "checkbox" || it.type === "radio")) {
		it.checked = ["true", "on", "yes", "1"].includes(value.toLowerCase());
	} else if (it instanceof HTMLInputElement && !["file", "button", "submit", "image", "reset"].includes(it.type) ||
		it instanceof HTMLTextAreaElement) {
		hidden = it.type === "password";
		it.focus();
		it.value = value;
	} else if (it.isContentEditable) {
		it.textContent = value;
	} else {
		fillable = false;
	}
	if (fillable) tell();
	return {Found: true, Fillable: fillable, Hidden: hidden};
}`

	// shownScript returns the text and the fields of the page, also in open shadow roots and in frames of its
	// origin, whose elements are of other classes.
	shownScript = `({most}) => {
	const parts = [];
	const look = root => {
		const top = root.documentElement || root;
		parts.push(top.innerText || "", top.textContent || "");
		for (const it of root.querySelectorAll("*")) {
			const kind = it.localName;
			if (kind === "textarea" || kind === "input" && it.type !== "password" && it.type !== "hidden") parts.push(it.value);
			if (it.shadowRoot) look(it.shadowRoot);
			try { if (it.contentDocument) look(it.contentDocument); } catch {}
		}
	};
	look(document);
	const text = parts.join("\n");
	return {Text: text.slice(0, most), More: text.length > most};
}`

	extractScript = `({selector, what, most}) => {
	const root = selector ? document.querySelector(selector) : (what === "table" ? document.querySelector("table") : document.body);
	if (!root) return {Found: false};
	const line = text => (text || "").replace(/\s+/g, " ").trim();
	let text;
	if (what === "text") {
		text = root.innerText || "";
	} else if (what === "links") {
		const all = [...root.querySelectorAll("a[href]")];
		if (root.matches("a[href]")) all.unshift(root);
		text = all.slice(0, 2000).map(a => line(a.innerText) + "\t" + a.href).join("\n");
	} else {
		const table = root.matches("table") ? root : root.querySelector("table");
		if (!table) return {Found: false};
		text = [...table.rows].slice(0, 2000).map(r => [...r.cells].slice(0, 100).map(c => line(c.innerText)).join("\t")).join("\n");
	}
	return {Found: true, Text: text.slice(0, most), More: text.length > most};
}`
)
