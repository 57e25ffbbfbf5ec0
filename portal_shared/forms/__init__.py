"""Forms have fields with the API's rules, confirmation of actions, and refusals in the pages' words."""
