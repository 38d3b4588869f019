import test from "ava";
import { shareAbortReason } from "../../src/transport/abort-reason.ts";

function reasonOf(abort: (controller: AbortController) => void): unknown {
  const controller = new AbortController();
  abort(controller);
  return controller.signal.reason;
}

test.serial("aborts without a reason share one, which looks as Node's own does", (t) => {
  const before = reasonOf((controller) => controller.abort()) as DOMException;
  shareAbortReason();
  shareAbortReason();
  const [first, second] = [1, 2].map(() => reasonOf((controller) => controller.abort())) as DOMException[];
  t.is(first, second);
  t.true(first instanceof DOMException);
  t.deepEqual([first?.name, first?.message, first?.code], [before.name, before.message, before.code]);
  const error = new Error("why");
  t.is(
    reasonOf((controller) => controller.abort(error)),
    error,
  );
});
