"""What a developer declares and works with: components, their context, questions, registries."""
