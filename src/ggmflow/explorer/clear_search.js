// Empty the search field. The server cannot: it does not know about text that matches no variable.
const input = cb_context.index.find_one_by_id(search.id)?.input_el
if (input != null) input.value = ""
