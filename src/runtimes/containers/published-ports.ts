/** Determines at which addresses the engine publishes the ports of an app. */
import type { ContainerRecord } from "../../engine/container-record.ts";
import { resolveAddresses, resolvePorts, type ResolvedPort } from "../../packages/settings/settings.ts";
import type { PublishedAddresses } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";

export interface PublishOptions {
  /** Host address of published ports that set none. */
  readonly publishAddress: string;
}

export const anyAddress = "0.0.0.0";
const loopback = "127.0.0.1";

/** Ports with the address that the manifest and the settings choose, else the daemon's. */
export function publishedPorts(
  app: Pick<RunnableApp, "manifest" | "settings">,
  { publishAddress }: PublishOptions,
): (ResolvedPort & { readonly address: string })[] {
  const chosen = resolveAddresses(app.manifest, app.settings);
  return resolvePorts(app.manifest, app.settings).map((port) => ({
    ...port,
    address: chosen.get(port.name) ?? publishAddress,
  }));
}

/** The addresses that the engine has bound for running containers. */
export function boundAddresses(containers: readonly Pick<ContainerRecord, "ports">[]): PublishedAddresses {
  const bound = containers.flatMap(({ ports }) =>
    ports.flatMap(({ protocol, hostPort, hostAddress = "" }) =>
      hostPort === undefined ? [] : [{ protocol, port: hostPort, address: hostAddress || anyAddress }],
    ),
  );
  return addressesByPort(bound);
}

/** Names of bound ports by port and protocol: the service, or the container, and its own port. */
export function boundNames(
  containers: readonly Pick<ContainerRecord, "ports" | "composeService" | "name">[],
): ReadonlyMap<string, string> {
  return new Map(
    containers.flatMap(({ ports, composeService, name }) =>
      ports.flatMap(({ protocol, hostPort, containerPort }): [string, string][] =>
        hostPort === undefined
          ? []
          : [[`${hostPort}/${protocol}`, `${composeService ?? name}-${containerPort}`]],
      ),
    ),
  );
}

export function addressesByPort(
  ports: readonly { readonly protocol: string; readonly port: number; readonly address: string }[],
): PublishedAddresses {
  const byPort = Map.groupBy(ports, ({ port, protocol }) => `${port}/${protocol}`);
  return new Map([...byPort].map(([key, all]) => [key, [...new Set(all.map(({ address }) => address))]]));
}

/**
 * Address at which this host reaches a TCP port of these containers; `undefined` if no container publishes it. An
 * address from a manifest is not trusted: probes connect only to what the engine has bound for the app.
 */
export function probedHost(
  port: number,
  containers: readonly Pick<ContainerRecord, "ports" | "networkMode">[],
): string | undefined {
  const [address] = boundAddresses(containers).get(`${port}/tcp`) ?? [];
  const usesHostNetwork = containers.some(({ networkMode }) => networkMode === "host");
  if (address === undefined) return usesHostNetwork ? loopback : undefined;
  return [anyAddress, "::"].includes(address) ? loopback : address;
}
