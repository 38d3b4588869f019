/** The page: one tab's look at the node. */
import { render } from "preact";
import { Guarded } from "./parts/guarded.tsx";
import { route, startRouting } from "./route.ts";
import { session, signInByAddress } from "./session.ts";
import { texts } from "./texts.ts";
import { views } from "./views.tsx";
import { Frame } from "./views/frame.tsx";
import { SignInView } from "./views/sign-in.tsx";

function Page() {
  const { value } = session;
  if (value.kind === "working") return <p class="alone">{texts.signIn.working}</p>;
  if (value.kind === "out") return <SignInView message={value.message} />;
  const { api, node } = value;
  const { view, args } = route.value;
  const View = views[view];
  return (
    <Frame node={node}>
      <Guarded of={route.value}>
        <View key={view} api={api} node={node} args={args} />
      </Guarded>
    </Frame>
  );
}

const signingIn = signInByAddress();
// A browser does not load a page again for another fragment, such as the next code's.
addEventListener("hashchange", () => void signInByAddress());
startRouting();
document.body.replaceChildren();
render(<Page />, document.body);
await signingIn;
