/** The addresses at which the daemon can be reached, or will be once it runs. */
import { createServer } from "node:net";
import { exposureWarning } from "../daemon/exposure.ts";
import { addressText, listenFailure } from "../lib/tcp-address.ts";
import { describeUser, listenerUids } from "../sys/socket-owner.ts";
import { ok, problem, warning, type Check, type ServedListener } from "./finding.ts";

export const checkDaemon: Check = ({ config, servedAt, isOthers = false }) => {
  if (servedAt === undefined)
    return warning(
      `no daemon responds on ${config.api.socket}; start it with systemctl${config.mode === "user" ? " --user" : ""} ` +
        "enable --now svc, or without systemd with svc daemon",
    );
  return ok(
    isOthers
      ? `responds on ${servedAt}; root can check its engine, port, files and configuration: sudo svc doctor`
      : `responds on ${servedAt}`,
  );
};

/** Whether the daemon listens on its TCP address; if no daemon runs, whether the address is free. */
export const checkPort: Check = async ({ config, servedAt, uid, listeners = [] }) => {
  const missing = listeners.filter(({ kind, state }) => kind === "tcp" && state !== "LISTENING");
  if (missing.length > 0) {
    const explain = ({ address, reason }: ServedListener): string =>
      reason === "" ? `the daemon does not listen on ${address}` : reason;
    return warning(missing.map(explain).join("; "));
  }
  const isServed = servedAt === config.api.socket;
  const { host, port } = config.api.listen;
  const address = addressText({ host, port });
  if (port === 0) return ok("any that is free");
  const code = await bindingFailure(host, port);
  if (code === undefined)
    return isServed ? warning(`the daemon does not listen on ${address}`) : ok(`${address} is free`);
  if (code === "EADDRINUSE" && servedAt !== undefined) {
    const stranger = (await listenerUids(port)).values().find((owner) => owner !== 0 && owner !== uid);
    if (stranger !== undefined)
      return warning(
        `${await describeUser(stranger)} listens on ${address}, not the daemon; send no token there until that program stops`,
      );
    return ok(`${address} is in use, as expected while a daemon runs`);
  }
  return problem(listenFailure({ host, port }, code));
};

export const checkExposure: Check = ({ config }) => {
  const exposure = exposureWarning(config);
  return exposure === undefined ? ok("only this machine reaches the daemon") : warning(exposure);
};

function bindingFailure(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", ({ code = "unknown error" }: NodeJS.ErrnoException) => resolve(code));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}
