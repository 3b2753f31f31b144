"""What a developer declares: tools, resources, resource templates, prompts and completions."""
