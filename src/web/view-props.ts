import type { Api } from "./api.ts";
import type { NodeView } from "./node-view.ts";

/** What every view gets. */
export interface ViewProps {
  readonly api: Api;
  readonly node: NodeView;
  /** What stands in the address behind the view's name. */
  readonly args: readonly string[];
}
