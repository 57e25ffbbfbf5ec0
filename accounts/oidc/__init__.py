"""Signs people in through identity providers by OpenID Connect: authorization code with PKCE, state and nonce.

`providers.py` knows their settings and addresses, `backend.py` exchanges the code and checks the ID token, `people.py` finds or adds the
person by issuer and subject, and `views.py` has the addresses that browsers and providers call.
"""
