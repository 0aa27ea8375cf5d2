// Send clicks on rows and headings of the table to the server, as data of the source `clicks`.
cb_context.index.find_one_by_id(table.id).shadow_el.addEventListener("click", (event) => {
  const pair = event.target.closest("tr[data-pair]")?.dataset.pair
  const column = event.target.closest("th[data-column]")?.dataset.column
  if (pair == null && column == null) return
  const count = (clicks.data.count[0] ?? 0) + 1
  clicks.data = {pair: [pair == null ? -1 : Number(pair)], column: [column ?? ""], count: [count]}
})
