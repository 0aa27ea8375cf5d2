// Set the properties that the server has sent, without sending them back to it.
// Texts are written into the page directly: if Bokeh set them, it would lay out the whole page again.
for (const [id, properties] of Object.entries(JSON.parse(message.data.text[0]))) {
  const model = models[id]
  const text = properties.text == null ? null : cb_context.index.find_one_by_id(id)?.markup_el
  if (text == null) {
    model.setv(properties, {sync: false, check_eq: false})
  } else {
    model.setv(properties, {silent: true})
    text.innerHTML = properties.text
    const [host, row] = [text.getRootNode().host, text.querySelector("tr.on")]
    if (row != null) {  // scroll to the selected row
      const [top, bottom] = [row.offsetTop - row.offsetHeight, row.offsetTop + row.offsetHeight]
      if (top < host.scrollTop) host.scrollTop = top
      else if (bottom > host.scrollTop + host.clientHeight) host.scrollTop = bottom - host.clientHeight
    }
  }
}
