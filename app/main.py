"""The frame: pages in the sidebar, the pair in use, the device, the running jobs."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # `streamlit run` puts app/ on the path, not the root
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402

from app import inputs, outputs, session  # noqa: E402

LOGO = ROOT / "assets" / "logo.svg"

st.set_page_config(page_title="Gaugescope", page_icon=str(LOGO), layout="wide")
st.logo(str(LOGO), size="large")

session.hold()
with st.sidebar:  # before the navigation, which writes the address
    inputs.choose_pair()
    inputs.choose_device()
    outputs.sidebar_jobs()

page = st.navigation(
    {
        "Models": [
            st.Page(
                ROOT / "pages" / "models.py",
                title="Models",
                icon=":material/compare_arrows:",
                url_path="models",
                default=True,
            )
        ],
        "Coordinates": [
            st.Page(
                ROOT / "pages" / "atlas.py",
                title="Atlas",
                icon=":material/map:",
                url_path="atlas",
            ),
            st.Page(
                ROOT / "pages" / "lab.py",
                title="Lab",
                icon=":material/experiment:",
                url_path="lab",
            ),
            st.Page(
                ROOT / "pages" / "residual.py",
                title="Residual",
                icon=":material/grid_on:",
                url_path="residual",
            ),
            st.Page(
                ROOT / "pages" / "neurons.py",
                title="Neurons",
                icon=":material/scatter_plot:",
                url_path="neurons",
            ),
            st.Page(
                ROOT / "pages" / "heads.py",
                title="Heads",
                icon=":material/schema:",
                url_path="heads",
            ),
        ],
        "Between two models": [
            st.Page(
                ROOT / "pages" / "alignment.py",
                title="Alignment",
                icon=":material/align_horizontal_left:",
                url_path="alignment",
            ),
            st.Page(
                ROOT / "pages" / "barrier.py",
                title="Barrier",
                icon=":material/landscape:",
                url_path="barrier",
            ),
        ],
        "Layers": [
            st.Page(
                ROOT / "pages" / "layers.py",
                title="Layers",
                icon=":material/layers:",
                url_path="layers",
            ),
            st.Page(
                ROOT / "pages" / "cutting.py",
                title="Cutting",
                icon=":material/content_cut:",
                url_path="cutting",
            ),
            st.Page(
                ROOT / "pages" / "gap.py",
                title="Gap in training",
                icon=":material/stacked_line_chart:",
                url_path="gap",
            ),
        ],
        "Results": [
            st.Page(
                ROOT / "pages" / "published.py",
                title="Published and measured here",
                icon=":material/fact_check:",
                url_path="published",
            ),
        ],
    }
)

replaced = st.container(key="replaced")
session.arrive(page.url_path)
page.run()
with replaced:
    outputs.replaced()
