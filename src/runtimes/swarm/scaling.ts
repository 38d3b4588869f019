/** Changes the number of tasks of a running app. */
import { SvcError } from "../../errors.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { requireFewTasks, scaledLabel } from "./stack-plan.ts";
import type { ServiceSpec, SwarmService } from "./swarm-api.ts";

export interface ScaleUpdates {
  /** Specifications of the services that stay unchanged. */
  readonly fixed: readonly ServiceSpec[];
  readonly updates: readonly { readonly service: SwarmService; readonly spec: ServiceSpec }[];
}

/**
 * The updates that give each scaled service `replicas` tasks.
 * @throws SvcError `not_possible` if the app has services, but none that can be scaled; `denied`
 */
export function scaleUpdates(
  app: RunnableApp,
  services: readonly SwarmService[],
  replicas: number,
): ScaleUpdates {
  // Services of earlier svc versions have no label, and are the only one of their app.
  const scaled = services.filter(({ part, labels }) => part === "" || labels[scaledLabel] !== undefined);
  if (services.length > 0 && scaled.length === 0) {
    const message = `each service of app "${app.id}" keeps data or sets its own number of tasks, so none can be scaled`;
    throw new SvcError("not_possible", message);
  }
  const fixed = services.filter((service) => !scaled.includes(service));
  const others = fixed.reduce((sum, service) => sum + service.replicas, 0);
  requireFewTasks(app, others + Math.max(1, scaled.length) * replicas);
  return {
    fixed: fixed.map(({ spec }) => spec),
    updates: scaled.map((service) => ({
      service,
      spec: { ...service.spec, Mode: { Replicated: { Replicas: replicas } } },
    })),
  };
}
