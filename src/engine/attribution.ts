/** Labels on engine objects. */

/** On everything that svc creates on an engine: the ID of the app. */
export const appLabel = "svc.app";
/** The installation of svc that owns the app: several svc daemons may share an engine. */
export const storeLabel = "svc.store";
/** Proves the other two labels; see `ownership.ts`. It is a secret: no response, log line or argument contains it. */
export const proofLabel = "svc.proof";
/** On containers that are created from an image ID: the name of that image. */
export const imageLabel = "svc.image";
/** Compose's own labels. */
export const composeProjectLabel = "com.docker.compose.project";
export const composeServiceLabel = "com.docker.compose.service";
export const composeVolumeLabel = "com.docker.compose.volume";
export const composeNetworkLabel = "com.docker.compose.network";

export type Labels = Readonly<Record<string, string>>;

/** Whether svc, compose or the swarm uses this label to decide who owns an object. */
export function isReservedLabel(name: string): boolean {
  return /^(?:svc|com\.docker\.(?:compose|swarm|stack))\./.test(name);
}

/** Empty values for the reserved labels of an image: every container made from the image would inherit them. */
export function blankedLabels(imageLabels: Labels | null | undefined): Record<string, string> {
  return Object.fromEntries(
    Object.keys(imageLabels ?? {})
      .filter(isReservedLabel)
      .map((name) => [name, ""]),
  );
}

/** The labels without the secret one. */
export function shownLabels(labels: Labels): Record<string, string> {
  return proofLabel in labels ? { ...labels, [proofLabel]: "" } : { ...labels };
}
