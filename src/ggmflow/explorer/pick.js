// Send a click on the network to the server, as data of the source `picks`.
// A click on a node also hits the edges that end there. Bokeh then calls this script once for the nodes and once for the
// edges, after the selections of both are set: the call for the edges does nothing if a node is selected.
const kind = cb_data.source === nodes ? "node" : "pair"
if (kind == "pair" && nodes.selected.indices.length > 0) return
const [k] = cb_data.source.selected.indices
if (k == null) return
picks.data = {kind: [kind], which: [cb_data.source.get_column(kind)[k]], count: [(picks.data.count[0] ?? 0) + 1]}
