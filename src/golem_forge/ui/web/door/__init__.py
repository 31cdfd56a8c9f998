"""The door of the page's server: all that stands between a stranger's connection and our application.

A request on its way in, and what turns it back:

    listening     the address: loopback and a free port, unless somebody names another (ForgeError before any request)
    running       uvicorn in the session's own loop: how long a header, how large a frame of a socket may be
    connections   who opens connections and says nothing, or nonsense, makes room for others
    door          Host 421 · Origin and Sec-Fetch-Site 403 · cookie 401 · size 413; then, and only then, the application
    login         what the cookie is good for, and how a printed link becomes one (429 for guesses)
    body          the body on its way in and the answer on its way out, each within its time (408)
    sockets       the pages that stay: counted (503), and cut off when their login ends
    headers       on every answer, refusals included: what a browser may do with it
    control       the other way in: a socket in FORGE_HOME, for commands of the same user (`forge web link`, `status`)

Threat: every page the person has open, and everybody else on the machine. Inside, nobody looks at these things again.
"""
