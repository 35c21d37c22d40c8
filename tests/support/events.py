"""What TensorBoard's files hold."""

import tensorflow as tf


def tags(directory):
    """Return the steps of each tag in the files of a directory."""
    found = {}
    for file in directory.glob("events*"):
        for record in tf.data.TFRecordDataset(str(file)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                found.setdefault(value.tag, []).append(event.step)
    return found
