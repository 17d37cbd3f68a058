"""inject: how is a skill trained in without losing the others?"""
