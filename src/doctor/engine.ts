import { stat } from "node:fs/promises";
import { negotiateApiVersion } from "../engine/api-version.ts";
import { SvcError } from "../errors.ts";
import { ok, warning, type Check } from "./finding.ts";

const timeoutMs = 3_000;

/** Whether svc can reach a container engine. Only containers need one. */
export const checkEngine: Check = async ({ config }) => {
  const { socket } = config.docker;
  if ((await stat(socket).catch(() => undefined)) === undefined) {
    return warning(
      `there is none at ${socket}, so docker and compose packages cannot run: install one, or set [docker] socket`,
    );
  }
  try {
    return ok(`API version ${await negotiateApiVersion(socket, timeoutMs)} at ${socket}`);
  } catch (error) {
    if (error instanceof SvcError) return warning(error.message);
    const { code = "it says nothing in time" } = error as NodeJS.ErrnoException;
    if (code === "EACCES")
      return warning(
        `this user may not open ${socket}, so containers cannot be run: join the group that may`,
      );
    return warning(`nobody answers at ${socket} (${code}), so containers cannot be run: start the engine`);
  }
};
