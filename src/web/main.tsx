/** The page's root component. */
import { render } from "preact";
import { ErrorBoundary } from "./parts/error-boundary.tsx";
import { route, startRouting } from "./route.ts";
import { session, startSession } from "./session.ts";
import { texts } from "./texts.ts";
import { views } from "./views.tsx";
import { Frame } from "./views/frame.tsx";
import { SignInView } from "./views/sign-in.tsx";
import { SwitchUserView } from "./views/switch-user.tsx";

function Page() {
  const { value } = session;
  if (value.kind === "working") return <p class="alone">{texts.signIn.working}</p>;
  if (value.kind === "asking") return <SwitchUserView {...value} />;
  if (value.kind === "out") return <SignInView message={value.message} />;
  const { api, node } = value;
  const { view, args } = route.value;
  const View = views[view];
  return (
    <Frame node={node}>
      <ErrorBoundary of={route.value}>
        <View key={view} api={api} node={node} args={args} />
      </ErrorBoundary>
    </Frame>
  );
}

const signingIn = startSession();
// A new fragment, such as one with the next code, does not reload the page.
addEventListener("hashchange", () => void startSession());
startRouting();
document.body.replaceChildren();
render(<Page />, document.body);
await signingIn;
