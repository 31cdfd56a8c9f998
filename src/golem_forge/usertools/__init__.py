"""User tools: folders below FORGE_HOME/tools that people write, agents create and anybody imports.

    manifest/     `tool.yaml` as data: its schema, read and written
    folder        one tool folder: its bytes, digest and entrypoint; writing and swapping folders
    registry      every tool folder there is now, and why the other folders are no tools
    store/        FORGE_HOME/state/custom.db: trust, build status, versions, authors, uses, statistics
    build/        from a snapshot to something that can be started, without running a line of it
    run/          one run of a tool inside walls, and the calls it makes of other tools
    test          a tool's own tests
    trust         draft, built, tested, active, retired; promotion and activation
    share/        import, export, update, `tools.lock`
    suggestions   repeated calls in the journals that could become one tool

Every run takes the one path: a user tool reaches it as a Tool like any other (`tool`, `catalog_sync`).
"""
