// Download the file whose name, type and text the source holds.
const {name, type, text} = Object.fromEntries(Object.entries(source.data).map(([key, values]) => [key, values[0]]))
if (text == null) return
const link = document.createElement("a")
link.href = URL.createObjectURL(new Blob([text], {type}))
link.download = name
link.click()
URL.revokeObjectURL(link.href)
