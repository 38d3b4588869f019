import { lookup } from "node:dns/promises";
import { hostname } from "node:os";
import { unlessAborted } from "../lib/abort.ts";
import { ok, warning, type Check } from "./finding.ts";

const timeoutMs = 5_000;

/** Whether the servers of the configured sources can be resolved; without sources, this host's own name. */
export const checkDns: Check = async ({ config }) => {
  const servers = config.sources.flatMap(({ url }) => (URL.canParse(url) ? [new URL(url).hostname] : []));
  const names = [...new Set(servers.filter((name) => name !== ""))];
  const ownName = hostname();
  const resolvable = names.length > 0 ? names : [ownName];
  const signal = AbortSignal.timeout(timeoutMs);
  const answers = await Promise.allSettled(resolvable.map((name) => unlessAborted(lookup(name), signal)));
  const unknown = resolvable.filter((_name, index) => answers[index]?.status === "rejected");
  return unknown.length === 0
    ? ok(`${resolvable.join(", ")} can be resolved`)
    : names.length > 0
      ? warning(`${unknown.join(", ")} cannot be resolved: see /etc/resolv.conf and /etc/hosts`)
      : warning(`${ownName}, this host's own name, cannot be resolved: give it a line in /etc/hosts`);
};
