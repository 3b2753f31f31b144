"""Request handling: admission, authorization and the call of the component's function."""
