const words = (run) => run.args[0].toLowerCase().split(/\s+/).filter((word) => word !== "");

const handlers = {
  count: (run) => ({ words: words(run).length, different: new Set(words(run)).size }),
  sort: (run) => [...new Set(words(run))].sort().join("\n"),
};
