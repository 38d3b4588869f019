/** Takes a listening socket, and holds it until it is ended. */
process.on("message", (_message, server) => process.send?.(server === undefined ? "none" : "taken"));
process.on("disconnect", () => process.exit());
