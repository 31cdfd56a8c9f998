"""A provider of OpenID Connect that signs what a test wants, and counts what it is asked. For hostile cases; the real
one is in `openid_provider.mjs`."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

CLIENT = "forge"
SECRET = "the client's secret"


def ec_key() -> Any:
    return ec.generate_private_key(ec.SECP256R1())


def rsa_key(bits: int = 2048) -> Any:
    return rsa.generate_private_key(65537, bits)


def published(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    """The public half, as a provider shows it."""
    kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), "kid": kid, **more}


class Issuer:
    """`answers`: what each path answers, (status, JSON), instead of the usual; `claims` and `header` go into tokens."""

    def __init__(self) -> None:
        self.key, self.kid = ec_key(), "first"
        self.keys = [published(self.key, self.kid)]
        self.algorithm = "ES256"
        self.people: dict[str, dict[str, Any]] = {"1": {"preferred_username": "ada", "groups": ["dev"]}}
        self.claims: dict[str, Any] = {}
        self.header: dict[str, Any] = {}
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: Counter[str] = Counter()
        self.codes: dict[str, tuple[str, str, str]] = {}
        """Code → (subject, nonce, challenge)."""
        self.refresh: dict[str, str] = {}
        self.gives_refresh = True
        self._numbers = iter(range(1, 1_000_000))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def sign_in(self, location: str, subject: str = "1") -> dict[str, str]:
        """As somebody who was sent there and typed their password: what comes back with their browser."""
        asked = dict(parse_qsl(urlsplit(location).query))
        assert (asked["client_id"], asked["code_challenge_method"]) == (CLIENT, "S256")
        code = f"code-{next(self._numbers)}"
        self.codes[code] = (subject, asked["nonce"], asked["code_challenge"])
        return {"code": code, "state": asked["state"], "iss": self.url}

    def token(self, subject: str, nonce: str = "") -> str:
        now = time.time()
        claims = {"iss": self.url, "aud": CLIENT, "sub": subject, "iat": now, "exp": now + 300}
        claims |= {"nonce": nonce} if nonce else {}
        claims |= self.people[subject] | self.claims
        claims = {name: value() if callable(value) else value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, self.key, self.algorithm, headers={"kid": self.kid, **self.header})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str, form: dict[str, str], authorization: str) -> tuple[int, Any]:
        self.asked[path] += 1
        if path in self.answers:
            return self.answers[path]
        if path == "/.well-known/openid-configuration":
            names = {"authorization_endpoint": "auth", "token_endpoint": "token", "jwks_uri": "jwks"}
            ends = {name: f"{self.url}/{end}" for name, end in names.items()}
            return 200, {"issuer": self.url, "userinfo_endpoint": f"{self.url}/me", **ends}
        if path == "/jwks":
            return 200, {"keys": self.keys}
        if path == "/me":
            subject = authorization.removeprefix("Bearer ")
            return 200, {"sub": subject, **self.people[subject]}
        assert path == "/token"
        basic = base64.b64encode(f"{CLIENT}:the%20client%27s%20secret".encode()).decode()
        if authorization != f"Basic {basic}":
            return 401, {"error": "invalid_client"}
        if form["grant_type"] == "refresh_token":
            subject, nonce = self.refresh.pop(form["refresh_token"], ""), ""
        else:
            subject, nonce, challenge = self.codes.pop(form["code"], ("", "", ""))
            proof = base64.urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
            subject = subject if proof == challenge else ""
        if subject not in self.people:
            return 400, {"error": "invalid_grant"}
        newer = f"refresh-{next(self._numbers)}"
        self.refresh[newer] = subject
        told = {"id_token": self.token(subject, nonce), "access_token": subject, "refresh_token": newer}
        return 200, told if self.gives_refresh else {name: told[name] for name in ("id_token", "access_token")}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.do_POST()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                path = urlsplit(self.path).path
                status, said = issuer._answer(path, form, self.headers.get("authorization") or "")
                data = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("location", issuer.url + "/elsewhere")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *about: Any) -> None:
                return

        return Handler
