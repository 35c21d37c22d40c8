"""The nodes of a traced function."""


def nodes(function):
    """All nodes of a concrete function's graph, with those of the functions, loops and branches in it."""
    graph = function.graph.as_graph_def()
    own = {each.signature.name for each in graph.library.function}
    every = [*graph.node, *(node for each in graph.library.function for node in each.node_def)]
    return [node for node in every if node.op not in own]
