/** Warns if others on the network can read the daemon's traffic. */
import { addressText } from "../lib/tcp-address.ts";
import type { Config } from "./config.ts";

/** One sentence if the TCP address is not a loopback address: svc has no TLS, and tokens act as root. */
export function exposureWarning({ api }: Pick<Config, "api">): string | undefined {
  const { host } = api.listen;
  const isLoopback = host === "localhost" || /^(::ffff:)?127\./i.test(host) || host === "::1";
  if (isLoopback) return undefined;
  return `[api] listen is ${addressText(api.listen)}, which other machines reach without TLS: tokens can be read on the way; put a proxy or a tunnel with TLS before 127.0.0.1`;
}
