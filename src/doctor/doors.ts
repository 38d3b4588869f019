/** The addresses at which the daemon is, or will be, reached. */
import { createServer } from "node:net";
import { exposureWarning } from "../daemon/exposure.ts";
import { addressText, listenFailure } from "../lib/listen-failure.ts";
import { ok, problem, warning, type Check } from "./finding.ts";

export const checkDaemon: Check = ({ config, servedAt }) =>
  servedAt !== undefined
    ? ok(`answers on ${servedAt}`)
    : warning(
        `nobody answers on ${config.api.socket}: start it, with systemctl${config.mode === "user" ? " --user" : ""} ` +
          "enable --now svc where systemd runs, else with svc daemon",
      );

/** Whether the port is free for a daemon that does not run. */
export const checkPort: Check = async ({ config, servedAt }) => {
  const isServed = servedAt === config.api.socket;
  const { host, port } = config.api.listen;
  const address = addressText({ host, port });
  if (port === 0) return ok("any that is free");
  const code = await bindingFailure(host, port);
  if (code === undefined)
    return isServed ? warning(`the daemon does not listen on ${address}`) : ok(`${address} is free`);
  if (code === "EADDRINUSE" && isServed) return ok(`${address} is taken, as it is with a daemon`);
  if (code === "EADDRINUSE" && servedAt !== undefined)
    return ok(
      `${address} is taken; you need none with the daemon on ${servedAt}, and another for one of your own`,
    );
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
