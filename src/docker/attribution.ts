/** Which app a container, volume or network belongs to. */
import { createHash } from "node:crypto";

/** Labels on everything that svc makes on an engine: id of the app, and of the installation of svc that has it. */
export const appLabel = "svc.app";
/** Several daemons of svc may share an engine: another installation's app is not ours. */
export const storeLabel = "svc.store";
/** On containers that are made from an image's id: what that image was called then. */
export const imageLabel = "svc.image";
/** Compose's own labels. */
export const composeProjectLabel = "com.docker.compose.project";
export const composeServiceLabel = "com.docker.compose.service";
export const composeVolumeLabel = "com.docker.compose.volume";
export const composeNetworkLabel = "com.docker.compose.network";

export type Labels = Readonly<Record<string, string>>;

/** The labels of what is made for an app. */
export function appLabels(appId: string, storeId: string): Record<string, string> {
  return { [appLabel]: appId, [storeLabel]: storeId };
}

/** Whether something with these labels was made for the app. */
export function isMadeFor(appId: string, storeId: string, labels: Labels): boolean {
  return labels[appLabel] === appId && labels[storeLabel] === storeId;
}

/** What the engine's lists are asked for to tell what was made for the app alone. */
export function madeForFilter(appId: string, storeId: string): { label: string[] } {
  return { label: Object.entries(appLabels(appId, storeId)).map(([name, value]) => `${name}=${value}`) };
}

/** The compose project of an app: `svc-<id>`. Compose allows no dots in names; an id with dots is told apart by a digest. */
export function composeProjectOf(appId: string): string {
  if (!appId.includes(".")) return `svc-${appId}`;
  const digest = createHash("sha256").update(appId).digest("hex").slice(0, 8);
  return `svc-${appId.replaceAll(".", "-")}-${digest}`;
}

export interface AttributionOptions {
  /** Identifies this installation. */
  storeId: string;
  /** Ids of the installed apps. */
  appIds: Iterable<string>;
}

/** Says which installed app owns what carries `labels`; `undefined`: none of ours. */
export type Attribution = (labels: Labels) => string | undefined;

/**
 * By our own labels, else by the compose project: a container that somebody else started in an app's project is the
 * app's too. What another installation has labelled is never ours, nor what an app left behind that is installed no more.
 */
export function createAttribution({ storeId, appIds }: AttributionOptions): Attribution {
  const installed = new Set(appIds);
  const projects = new Map([...installed].map((id) => [composeProjectOf(id), id]));
  return (labels) => {
    const store = labels[storeLabel];
    if (store !== undefined && store !== storeId) return undefined;
    const app = labels[appLabel];
    if (store !== undefined && app !== undefined) return installed.has(app) ? app : undefined;
    return projects.get(labels[composeProjectLabel] ?? "");
  };
}
