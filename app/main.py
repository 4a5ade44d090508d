"""The frame: pages in the sidebar, the pair in use, the device, the running jobs."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # `streamlit run` puts app/ on the path, not the root
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402

from app import inputs, outputs  # noqa: E402

LOGO = ROOT / "assets" / "logo.svg"

st.set_page_config(page_title="Gaugescope", page_icon=str(LOGO), layout="wide")
st.logo(str(LOGO), size="large")

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
                ROOT / "pages" / "heads.py",
                title="Heads",
                icon=":material/schema:",
                url_path="heads",
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
    }
)

page.run()
