// What the code finds around it, and what calls it. It runs before the code, and
// keeps its own names of what it needs: the code may change every global.
(() => {
  const call = globalThis.__call, emit = globalThis.__emit;
  delete globalThis.__call;
  delete globalThis.__emit;
  const { parse, stringify } = JSON, look = eval, words = String, own = Object.prototype.hasOwnProperty;
  const text = (v) => { const s = stringify(v); return s === undefined ? 'null' : s; };
  const ask = (name) => (...params) => parse(call(name, text(params)));
  const chunk = (v) => emit('chunk', text(v));
  const host = { chunk };
  for (const name of ['fetch', 'read', 'write', 'llm', 'log']) host[name] = ask(name);
  globalThis.host = Object.freeze(host);
  const log = (...list) => { try { host.log(list.map((v) => typeof v === 'string' ? v : text(v)).join(' ')); } catch { /* nobody listens */ } };
  globalThis.console = { log, info: log, warn: log, error: log, debug: log };

  const find = (entry, handler) => {
    const table = look('typeof handlers === "object" ? handlers : undefined');
    if (handler !== '' && table && own.call(table, handler) && typeof table[handler] === 'function') return (input) => table[handler](input);
    const f = look(`typeof ${entry} === "function" ? ${entry} : undefined`);
    if (f === undefined) throw new ReferenceError(`the script defines no function ${entry}` + (handler === '' ? '' : `, and no handlers with ${handler}`));
    return f;
  };
  const whole = async (entry, handler, input) => {
    let value = await find(entry, handler)(parse(input));
    if (value !== null && typeof value === 'object' && typeof value.next === 'function') {
      for (;;) {
        const step = await value.next();
        if (step.done) { value = step.value; break; }
        chunk(step.value);
      }
    }
    return text(value);
  };
  return (entry, handler, input) => {
    whole(entry, handler, input).then(
      (value) => emit('result', value),
      (e) => {
        const error = e instanceof Error;
        emit('error', text({ name: error ? words(e.name) : '', message: error ? words(e.message) : words(e), stack: error ? words(e.stack) : '' }));
      });
  };
})()
