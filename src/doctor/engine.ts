import { stat } from "node:fs/promises";
import { negotiateApiVersion } from "../engine/api-version.ts";
import { SvcError } from "../errors.ts";
import { ok, warning, type Check } from "./finding.ts";

const timeoutMs = 3_000;

/** Whether svc can reach a container engine. Only containers need one. */
export const checkEngine: Check = async ({ config }) => {
  const { socket } = config.docker;
  const info = await stat(socket).catch(() => undefined);
  if (info === undefined) {
    return warning(
      `not found at ${socket}, so container and compose apps cannot run: install Docker, or set [docker] socket`,
    );
  }
  try {
    return ok(`API version ${await negotiateApiVersion(socket, timeoutMs)} at ${socket}`);
  } catch (error) {
    if (error instanceof SvcError) return warning(error.message);
    const { code = "no response in time" } = error as NodeJS.ErrnoException;
    if (code === "EACCES")
      return warning(
        `this user may not open ${socket}, so containers cannot run: ${info.gid === 0 ? "" : "join the group that owns it, or "}use the daemon of root`,
      );
    return warning(`not responding at ${socket} (${code}), so containers cannot run: start the engine`);
  }
};
