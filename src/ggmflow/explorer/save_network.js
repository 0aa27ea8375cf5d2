// Download the network as an SVG file.
cb_context.index.find_one_by_id(plot.id).export("svg").to_blob().then((blob) => {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(blob)
  link.download = "network.svg"
  link.click()
  URL.revokeObjectURL(link.href)
})
