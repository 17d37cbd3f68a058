"""graft: which few weights hold a fine-tuned skill?"""
