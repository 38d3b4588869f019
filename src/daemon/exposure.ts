/** Whether others on the network can hear what is said to the daemon. */
import { isIP } from "node:net";
import type { Config } from "./config.ts";

/** One sentence where the TCP address is more than this machine's own: svc speaks no TLS, and tokens act as root. */
export function exposureWarning({ api }: Pick<Config, "api">): string | undefined {
  const { host, port } = api.listen;
  const isLoopback = host === "localhost" || /^(::ffff:)?127\./i.test(host) || host === "::1";
  if (isLoopback) return undefined;
  const address = isIP(host) === 6 ? `[${host}]:${port}` : `${host}:${port}`;
  return `[api] listen is ${address}, which other machines reach without TLS: tokens can be read on the way; put a proxy or a tunnel with TLS before 127.0.0.1`;
}
