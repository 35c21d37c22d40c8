"""What runs keep: experiments that are recorded, numbers in the course of training, predictions and scores."""
