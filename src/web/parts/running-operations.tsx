import { useId } from "preact/hooks";
import type { Operation } from "../../../gen/svc/v1/operation_pb.ts";
import type { NodeView } from "../node-view.ts";
import { stepOf } from "../operations.ts";
import { texts } from "../texts.ts";
import { ConfirmButton } from "./confirm.tsx";
import { StepLine } from "./work.tsx";

interface Props {
  readonly node: NodeView;
  /** Only the operations on this app. */
  readonly appId?: string;
}

/** Running operations of all users. */
export function RunningOperations({ node, appId }: Props) {
  const id = useId();
  const shown = node.operations.running.value.filter((each) => appId === undefined || each.appId === appId);
  if (shown.length === 0) return null;
  return (
    <section class="card" aria-labelledby={id}>
      <h2 id={id}>{texts.work.running}</h2>
      <ul class="troubles">
        {shown.map((operation) => (
          <Running key={operation.id} node={node} of={operation} />
        ))}
      </ul>
    </section>
  );
}

function Running({ node, of }: { node: NodeView; of: Operation }) {
  const { id, kind, appId } = of;
  return (
    <li>
      <b>{texts.work.runningOf(kind, appId)}</b> <StepLine of={stepOf(of)} isLast />{" "}
      <ConfirmButton
        title={texts.work.cancelTitle}
        action={texts.work.cancel}
        isDanger={false}
        onConfirm={() => node.operations.cancel(id)}
      >
        <p>{texts.app.cancelLoses}</p>
      </ConfirmButton>
    </li>
  );
}
