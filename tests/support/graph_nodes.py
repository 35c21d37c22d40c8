"""The nodes of a traced function."""


def nodes(function):
    """All nodes of the graph of a concrete function, including functions, loops and branches."""
    graph = function.graph.as_graph_def()
    own = {each.signature.name for each in graph.library.function}
    every = [*graph.node, *(node for each in graph.library.function for node in each.node_def)]
    return [node for node in every if node.op not in own]
