"""The agent: worker files, sessions, the model loop, module hosts, delegation and slash commands.

    session_plan    reads and checks everything a session needs; opens nothing
    session_state   what all workers of one session share: bus, journal, rules, approvals, gate
    worker_scope    one worker's catalog, sandbox, walls and policy, connected to the one path
    worker_manager  starts and stops the workers of a session
    loop            request, response, tool calls, results, next request, until there is an answer
    runtime         the public face of a session with a model; `session` is the one without

Sub-packages: `files` (worker files), `model` (models and providers), `modules` (tools from Python code, in child
processes), `slash` (commands that a person types).
"""
