"""nextword: does next-word prediction already solve the task, and through which words?"""
