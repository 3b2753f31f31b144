"""Request handling: dispatch, authorization and the call of the component's function."""
