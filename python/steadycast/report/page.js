// Saves a figure as it stands on a white page, so that it can be pasted where the page can't.
function png(button){const svg=button.closest('figure').querySelector('svg'),box=svg.viewBox.baseVal,k=2.5;
const light={ink:'#1b1f24',muted:'#667080',grid:'#e4e7eb',paper:'#ffffff'};
let text=new XMLSerializer().serializeToString(svg).replace(/var\(--c-([0-9a-f]{6})[^)]*\)/g,'#$1')
.replace(/var\(--(\w+)\)/g,(m,n)=>light[n]||m).replace('<svg ','<svg font-family="DejaVu Sans,Verdana,sans-serif" ');
const image=new Image();image.onload=()=>{const c=document.createElement('canvas');c.width=box.width*k;c.height=box.height*k;
const g=c.getContext('2d');g.fillStyle='#fff';g.fillRect(0,0,c.width,c.height);g.drawImage(image,0,0,c.width,c.height);
const a=document.createElement('a');a.download=button.dataset.name+'.png';a.href=c.toDataURL('image/png');a.click()};
image.src='data:image/svg+xml;charset=utf-8,'+encodeURIComponent(text)}
